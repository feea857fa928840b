"""What a run is called on pages that others read."""

from fulcrum.data.fillers import Folder
from fulcrum.spec.words import in_brief


def test_a_folder_is_told_by_its_name_and_not_by_where_it_lies(tmp_path):
    """A kept study said in which folder of whose machine its pictures lay."""
    pictures = tmp_path / "emoji_64"
    pictures.mkdir()
    assert in_brief(Folder(path=str(pictures))) == "folder(path=emoji_64)"


def test_what_is_no_path_of_a_machine_stays():
    assert in_brief(Folder(path="elsewhere/pictures")) == "folder(path=elsewhere/pictures)"
