"""The web server of the tests of remote files."""

from tests.web_site import site  # noqa: F401
