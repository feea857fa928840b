"""What of a run lies on disk: its folder, its checkpoints, weights kept along the way, weights it begins from."""
