"""The commands of SMB: one function each, named as in [MS-SMB2] section 2.2."""
