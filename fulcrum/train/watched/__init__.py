"""What looks at a run and never touches it: observers, trackers, clocks and costs."""
