"""The `hakmem` command: programs under hakmem, and allocators compared."""
