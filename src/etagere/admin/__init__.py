"""The admin process: health, readiness and metrics of a server over HTTP."""
