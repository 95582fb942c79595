"""What is stored and what is said: frozen records, commands and results."""
