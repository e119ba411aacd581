"""What benchmarking cost over the months, and estimates of jobs that nobody has started."""
