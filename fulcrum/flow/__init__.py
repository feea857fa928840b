"""The mathematics of flow matching: the path, times, what a prediction means, draws and samplers."""
