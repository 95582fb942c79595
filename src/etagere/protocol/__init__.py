"""What clients speak: front ends that turn bytes into operations and results into bytes."""
