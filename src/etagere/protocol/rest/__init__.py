"""What every REST service shares: from the request head to the error response."""
