"""Telemetry: what the processes of a server report about themselves."""
