"""Information classes: what clients ask about files, directories and volumes ([MS-FSCC] 2)."""
