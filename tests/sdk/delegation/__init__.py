"""User delegation through the SDKs, over HTTPS with bearer tokens."""
