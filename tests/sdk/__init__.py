"""Tests with the public Python SDKs against a server started as a user starts it."""
