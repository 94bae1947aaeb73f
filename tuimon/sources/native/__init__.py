"""Where the CPU time of threads goes below Python: samples of the kernel, by library and phase."""
