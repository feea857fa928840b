"""A stand-in for the package wandb, as the text of a module."""

WANDB = """
import json, os
class Run:
    def __init__(self, **given): self.given, self.lines, self.metrics = given, [], []
    def define_metric(self, *names, **more): self.metrics.append(names)
    def log(self, values):
        if os.environ.get("FAKE_WANDB") == "breaks": raise OSError("no network")
        self.lines.append(values)
    def finish(self):
        with open(os.path.join(self.given["dir"], "wandb.json"), "w") as stream:
            json.dump({"given": self.given, "lines": self.lines}, stream)
def Image(path):
    return {"picture": path}
def init(**given):
    if os.environ.get("FAKE_WANDB") == "no login": raise RuntimeError("api_key not configured")
    return Run(**given)
"""
