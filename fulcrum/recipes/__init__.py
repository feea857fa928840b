"""Named baselines: functions that return a RunSpec."""
