"""The blob service: containers and what is in them."""
