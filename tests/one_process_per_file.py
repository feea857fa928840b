"""Which process runs which test: a file's tests go to one, so that its costly fixtures are made
once.

The marks of `--dist loadgroup` do this no more: xdist 3.8 writes them where pytest 9.2 does not
look, and every test goes to the next free process, without a word.
"""

import pytest
from xdist.scheduler import LoadScopeScheduling


class OneProcessPerFile(LoadScopeScheduling):
    """The laws, much work in one file, go lever by lever."""

    def _split_scope(self, nodeid):
        path, _, test = nodeid.partition("::")
        return test.rpartition("-")[2] if test.startswith("test_law[") else path


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    return OneProcessPerFile(config, log) if config.getvalue("dist") == "loadgroup" else None
