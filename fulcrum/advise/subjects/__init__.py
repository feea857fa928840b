"""What an audit looks at, read and never run: scripts, configurations, checkpoints, data sets, a probed step."""
