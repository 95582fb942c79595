"""Where the bytes of copies and from-URL uploads come from."""
