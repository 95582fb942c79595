"""The SMB server: SMB 2.1, 3.0, 3.0.2 and 3.1.1, on the files that REST clients see."""
