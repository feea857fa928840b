"""Sends an exported folder to a hub of models, with the user's own token: huggingface_hub finds it, nothing here looks."""

import re
from pathlib import Path

from fulcrum.spec.errors import BadInput, RunFailed, install_extra

NAME = re.compile(r"hub:(?P<repo>\w[\w.-]*/\w[\w.-]*)")


def hub_name(target: str) -> str:
    """ORG/NAME of hub:ORG/NAME; refused before anything is written."""
    named = NAME.fullmatch(target)
    if named is None:
        raise BadInput(f"--push wants hub:ORG/NAME, found '{target}'", "such as --push hub:me/red-circles")
    try:
        import huggingface_hub  # noqa: F401
    except ImportError:
        raise BadInput("--push needs the package huggingface_hub", install_extra("diffusers")) from None
    return named["repo"]


def push(folder: Path, repo: str, message: str, private: bool = True) -> str:
    """Upload a folder as a new model; one that has a pipeline already is left alone. Returns its address."""
    from huggingface_hub import HfApi

    api = HfApi()
    try:
        api.create_repo(repo, repo_type="model", private=private, exist_ok=True)
        taken = api.file_exists(repo, "model_index.json")
        if not taken:
            return str(api.upload_folder(repo_id=repo, folder_path=str(folder), commit_message=message))
    except Exception as error:  # its library raises a dozen kinds, down to those of the network
        raise RunFailed(
            f"the hub did not take {repo}: {type(error).__name__}: {str(error)[:300]}",
            f"the folder {folder} is whole: log in with 'hf auth login' and upload it, or export again with --push",
        ) from error
    raise BadInput(
        f"{repo} holds a pipeline already", f"nothing was sent; choose another name. The folder {folder} is whole"
    )
