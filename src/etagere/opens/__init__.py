"""The table of opens: who has which file open, in the memory of the file process."""
