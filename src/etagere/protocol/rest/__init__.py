"""Shared by all REST services: from the request head to the error response."""
