"""The cifs client of the Linux kernel against this server, in a virtual machine."""
