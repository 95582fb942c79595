"""Encoders and decoders of request and response bodies."""
