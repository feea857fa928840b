"""For every promise the fault that would break it, and the test that must notice: it fails with it
and passes without.

A fault is a text of the package and the text that replaces it. It is searched for in the named file
first, then in the whole package, and must be found exactly once: a change of the code asks for a
new look at its fault. A file that has moved or a line that is wrapped elsewhere does not.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from mutants.forked_tests import run_tests
from mutants.tree_copy import ROOT, TreeCopy

TOKEN = re.compile(r"\w+|[^\w\s]")
CLOSING = (")", "]", "}")


@cache
def package_texts(root: Path) -> dict[str, str]:
    """Return the Python files of the package by their paths."""
    paths = sorted((root / "fulcrum").rglob("*.py"))
    return {path.relative_to(root).as_posix(): path.read_text() for path in paths}


def any_layout(text: str) -> re.Pattern[str]:
    """Match a text however its lines are wrapped: any whitespace between tokens, trailing commas or
    none.

    A text that begins with whitespace begins a line; one that ends with a newline ends a line.
    """
    tokens = TOKEN.findall(text)
    pattern = r"^(?P<indent>[ \t]*)" if text[:1].isspace() else "(?P<indent>)"
    for token, following in zip(tokens, [*tokens[1:], ""], strict=True):
        is_trailing_comma = token == "," and following in CLOSING
        pattern += ",?" if is_trailing_comma else re.escape(token)
        if following in CLOSING and not is_trailing_comma:
            pattern += r"\s*,?"
        if following:
            pattern += r"\s+" if _is_word(token) and _is_word(following) else r"\s*"
    if text.endswith("\n"):
        pattern += r"(?=[ \t]*(?:#.*)?$)"
    return re.compile(pattern, re.MULTILINE)


def _is_word(token: str) -> bool:
    return bool(re.match(r"\w", token))


class PromiseMutant(NamedTuple):
    fault: str
    file: str  # where the text is searched for first
    before: str
    after: str
    test: str
    #: or several: by which the test may fail too, where the promise is that there is none
    error: str = ""

    def applied(self, texts: Mapping[str, str]) -> tuple[str, str]:
        """Return the file that holds the text, and what the file holds with the fault."""
        pattern = any_layout(self.before)
        found = [(self.file, match) for match in pattern.finditer(texts.get(self.file, ""))]
        if not found:
            found = [
                (file, match) for file, text in texts.items() for match in pattern.finditer(text)
            ]
        if len(found) != 1:
            places = ", ".join(file for file, _ in found) or self.file
            raise ValueError(
                f"the text of '{self.fault}' was found {len(found)} times ({places}), expected"
                " once; has the code changed? Write its fault anew in mutants/promise_mutants.py"
            )
        file, match = found[0]
        after = self.after.lstrip() if self.before[:1].isspace() else self.after
        after = after.removesuffix("\n") if self.before.endswith("\n") else after
        text = texts[file]
        return file, text[: match.start()] + match["indent"] + after + text[match.end() :]


class PromiseOutcome(NamedTuple):
    fault: str
    test: str
    sound: bool  # the test passes without the fault
    noticed: bool  # and fails by an assertion with it
    by: str  # what failed, and how

    def __str__(self) -> str:
        word = "noticed" if self.noticed else "NOT NOTICED" if self.sound else "NOT SOUND"
        return f"{word:<12} {self.fault} ({self.by or self.test})"


def tried(folder: Path, only: Sequence[str] = ()) -> Iterator[PromiseOutcome]:
    """Each fault in turn, or those whose words hold one of `only`."""
    tree, sound = TreeCopy(folder), dict[str, bool]()
    for one in PROMISES:
        if only and not any(words in one.fault for words in only):
            continue
        if one.test not in sound:
            ending = run_tests(tree.path, [one.test])
            sound[one.test] = bool(ending.passed) and not ending.failed
        with tree.replaced(*one.applied(package_texts(ROOT))):
            ending = run_tests(tree.path, [one.test])
        by = f"{ending.failed}: {ending.fault}" if ending.failed else ""
        noticed = ending.asserted or bool(ending.failed and ending.fault in one.error.split())
        yield PromiseOutcome(one.fault, one.test, sound[one.test], sound[one.test] and noticed, by)


ATOMIC, LOOP, SESSION = (
    "fulcrum/files/atomic.py",
    "fulcrum/training/loop.py",
    "fulcrum/training/session.py",
)
RESUME = "fulcrum/training/saver.py"
SAVED, STATISTICS = "fulcrum/training/checkpoint.py", "fulcrum/judge/statistics.py"
RESUMED = "tests/train/test_session.py::test_a_killed_run_resumes_to_the_same_weights"

PROMISES = (
    # A run that is interrupted
    PromiseMutant(
        "a resumed run begins at image 0",
        RESUME,
        "    return saved.state\n",
        "    return State()\n",
        RESUMED,
    ),
    PromiseMutant(
        "the optimizer's state is not resumed",
        RESUME,
        '"optimizer": built.optimizer.state(),',
        '"optimizer": {name: one.clone() for name, one in built.optimizer.state().items()},',
        RESUMED,
    ),
    PromiseMutant(
        "noise comes from a generator that no checkpoint holds",
        "fulcrum/training/flow/noise.py",
        'normal(self.seed, "eps", index, self.shape, place) * self.noise_scale',
        '__import__("torch").randn(len(index), *self.shape) * self.noise_scale',
        RESUMED,
    ),
    PromiseMutant(
        "the average is not resumed",
        "fulcrum/training/average.py",
        "local(mean).copy_(local(given[name]))",
        "pass",
        "tests/train/test_average.py",
    ),
    PromiseMutant(
        "nothing is flushed",
        ATOMIC,
        "        os.fsync(handle)\n",
        "        pass\n",
        "tests/files/test_flushed.py",
    ),
    PromiseMutant(
        "a checkpoint is not flushed before it has its name",
        ATOMIC,
        "            if flush:\n                _flush_tree(aside)\n",
        "",
        "tests/train/test_flushed_checkpoint.py",
    ),
    PromiseMutant(
        "the folder of a new name is not flushed",
        ATOMIC,
        "            os.replace(aside, path)\n            if flush:\n                "
        "_flush(path.parent.resolve())\n",
        "            os.replace(aside, path)\n",
        "tests/files/test_flushed.py",
    ),
    PromiseMutant(
        "a file is written where it stands",
        ATOMIC,
        "            os.replace(aside, path)\n",
        "            path.write_bytes(aside.read_bytes()), aside.unlink()\n",
        "tests/files/test_atomic.py::test_a_link_is_replaced_and_what_it_names_is_kept",
    ),
    PromiseMutant(
        "a checkpoint's checksums are not compared",
        SAVED,
        "            if checksum != expected:\n",
        "            if False:\n",
        "tests/train/"
        "test_bad_files.py::test_one_flipped_bit_in_the_numbers_sets_a_checkpoint_aside",
    ),
    PromiseMutant(
        "a seal is not compared",
        "fulcrum/files/sealed.py",
        "    if not is_intact(value, field):\n",
        "    if False:\n",
        "tests/files/test_sealed.py",
    ),
    PromiseMutant(
        "a checkpoint with other tensors is loaded",
        SAVED,
        "            if require is not None:\n                require(found)\n",
        "",
        "tests/train/"
        "test_bad_files.py::test_a_checkpoint_with_other_tensors_is_set_aside_and_the_older_one_giv"
        "es_the_same_run",
        "RuntimeError",
    ),
    PromiseMutant(
        "a checkpoint of another run is loaded",
        SAVED,
        "            if key is not None and found.key != key:\n",
        "            if False:\n",
        "tests/train/test_bad_files.py::test_a_checkpoint_of_another_run_is_set_aside",
    ),
    PromiseMutant(
        "a run whose checkpoints are all damaged starts over",
        SAVED,
        '    if bad:\n        raise RunFailed(\n            f"every checkpoint under',
        '    if False:\n        raise RunFailed(\n            f"every checkpoint under',
        "tests/train/"
        "test_session.py::test_when_every_checkpoint_is_damaged_nothing_starts_over_in_silence",
    ),
    PromiseMutant(
        "something is read by pickle",
        "fulcrum/files/sealed.py",
        "\ndef sha256_bytes(",
        "\nimport pickle\n\n\ndef sha256_bytes(",
        "tests/files/test_no_pickle.py",
    ),
    PromiseMutant(
        "what is half written stays on a full disk",
        ATOMIC,
        "        aside.unlink(missing_ok=True)\n        raise\n",
        "        raise\n",
        "tests/files/test_failed_writes.py",
    ),
    PromiseMutant(
        "a failed write names no file",
        "fulcrum/files/paths.py",
        "            error.filename, error.filename2 = str(path) + given.removeprefix(aside or "
        "given), None\n",
        "            pass\n",
        "tests/files/test_failed_writes.py",
    ),
    PromiseMutant(
        "a lock is not taken",
        "fulcrum/files/lock.py",
        "fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)\n            return True\n        "
        "except BlockingIOError:\n",
        "return True\n        except BlockingIOError:\n",
        "tests/files/test_lock.py",
    ),
    PromiseMutant(
        "a run does not take its lock",
        SESSION,
        "    with claim(folder) if ranks.first else nullcontext():\n",
        "    with nullcontext():\n",
        "tests/train/test_session.py::test_two_processes_cannot_train_one_run",
    ),
    PromiseMutant(
        "a step that is not finite reaches the weights",
        LOOP,
        "            if counts:  # a step that is not finite never reaches the weights\n",
        "            if True:\n",
        "tests/train/"
        "test_session.py::test_a_step_that_is_not_finite_stops_before_the_optimizer_or_is_counted",
        "TrainingFailed",
    ),
    PromiseMutant(
        "the finite check comes after the optimizer",
        LOOP,
        "            if not counts:\n",
        "            optimizer.step(1.0, watch=False, at=state.images)\n"
        "            if not counts:\n",
        "tests/train/"
        "test_session.py::test_a_step_that_is_not_finite_stops_before_the_optimizer_or_is_counted",
    ),
    PromiseMutant(
        "steps that were left out are not counted against a run",
        SESSION,
        "    if state.skipped > order.most_skipped * steps or state.skipped >= steps:\n",
        "    if False:\n",
        "tests/train/"
        "test_session.py::test_a_step_that_is_not_finite_stops_before_the_optimizer_or_is_counted",
    ),
    PromiseMutant(
        "the doctor destroys a damaged checkpoint",
        "fulcrum/advice/doctor.py",
        '    return lambda: f"set aside as {set_aside(path).name}"\n',
        '    return lambda: f"removed {remove(path)}"\n',
        "tests/checkup/"
        "test_run_checkup.py::test_a_damaged_last_checkpoint_is_set_aside_and_the_run_ends_with_the"
        "_same_weights",
    ),
    PromiseMutant(
        "a limit on memory is not looked at",
        "fulcrum/training/dist/machine.py",
        'free = [float("inf"), _left_of_the_limit()]',
        'free = [float("inf")]',
        "tests/train/test_sized.py::test_a_limit_of_the_shell_counts_as_the_memory_there_is",
    ),
    PromiseMutant(
        "a line that is no JSON is an error of the reader",
        "fulcrum/files/sealed.py",
        "    except (ValueError, RecursionError) as error:\n        return Line(number, text, None,"
        " str(error))\n",
        "    except RecursionError as error:\n        return Line(number, text, None, "
        "str(error))\n",
        "tests/chaos/test_hostile_input.py::test_a_reader_refuses_in_words",
        "ExceptionGroup",  # of hypothesis: several inputs, several errors
    ),
    # Data
    PromiseMutant(
        "a quarantined sample is not booked",
        "fulcrum/data/stores/importing.py",
        "        self.outcomes[outcome] += 1\n",
        '        self.outcomes[outcome] += outcome != "quarantined"\n',
        "tests/data/store/test_import.py::test_the_ledger_adds_up_to_what_was_given",
        "RunFailed",
    ),
    PromiseMutant(
        "an import that goes on does not skip what is done",
        "fulcrum/data/stores/importing.py",
        "        stream = self._skip(iter(self.reader))\n",
        "        stream, self.parts = iter(self.reader), len(list(parts(self.partial)))\n",
        "tests/data/store/test_import.py::test_a_killed_import_goes_on_and_ends_the_same",
    ),
    PromiseMutant(
        "an import that was killed as it tidied up is not known",
        "fulcrum/data/stores/finish_import.py",
        '    if other:\n        raise BadInput(\n            f"{to} holds',
        '    if True:\n        raise BadInput(\n            f"{to} holds',
        "tests/data/store/"
        "test_import.py::test_an_import_that_was_killed_as_it_tidied_up_is_finished",
        "BadInput",
    ),
    PromiseMutant(
        "nobody looks whose folder it is",
        "fulcrum/data/stores/importing.py",
        "    require_begun(partial, mark)\n",
        "",
        "tests/data/store/test_begun_folder.py::test_a_folder_that_was_there_is_not_touched",
    ),
    PromiseMutant(
        "a source that changed meanwhile is not noticed",
        "fulcrum/data/stores/importing.py",
        "    return samples.hexdigest() == written\n",
        "    return True\n",
        "tests/data/store/test_import.py::test_a_source_that_changed_meanwhile_is_refused",
    ),
    PromiseMutant(
        "a picture's checksum is not compared",
        "fulcrum/data/stores/picture_store.py",
        'if len(data) != length or hashlib.sha256(data).digest() != about["sha"].tobytes():',
        "if len(data) != length:",
        "tests/data/store/test_import.py::test_one_flipped_bit_is_found",
    ),
    PromiseMutant(
        "a local copy's checksum is not compared",
        "fulcrum/files/remote.py",
        'intact = hashlib.file_digest(stream, "sha256").hexdigest() == path.name[len(key) + 1 :]',
        "intact = True",
        "tests/files/"
        "test_remote_cache.py::test_a_flipped_bit_in_a_copy_is_found_and_it_is_fetched_again",
    ),
    PromiseMutant(
        "what was fetched need not have its checksum",
        "fulcrum/files/remote.py",
        "        if sha256 and content.hexdigest() != sha256:\n",
        "        if False:\n",
        "tests/files/"
        "test_remote_cache.py::test_a_known_hash_is_enough_and_nothing_else_is_accepted",
    ),
    PromiseMutant(
        "the order depends on where a batch begins",
        "fulcrum/data/source.py",
        "_block(count, seed, epoch, block)[first : first + end - position]",
        "_block(count, seed, epoch, block)[: end - position]",
        "tests/data/test_order.py::test_any_cut_of_the_sequence_gives_the_same_sequence",
    ),
    PromiseMutant(
        "a name may lead out of an archive",
        "fulcrum/data/readers/shards.py",
        '        if path.is_absolute() or ".." in path.parts or "\\\\" in self.name or "\\0" in '
        "self.name:\n",
        "        if False:\n",
        "tests/data/readers/test_hostile_shards.py::test_shards_with_faults",
    ),
    PromiseMutant(
        "an archive may unfold without end",
        "fulcrum/data/readers/shards.py",
        "        if self.seen > self.most:\n",
        "        if False:\n",
        "tests/data/readers/test_hostile_shards.py::test_bombs_and_limits",
    ),
    PromiseMutant(
        "a header may be of any length",
        "fulcrum/data/readers/shards.py",
        "        if self.seen > self.headers_end:\n",
        "        if False:\n",
        "tests/data/readers/"
        "test_hostile_shards.py::test_a_header_without_end_is_not_read_into_memory",
    ),
    PromiseMutant(
        "a link leads out of a data set",
        "fulcrum/data/readers/reader.py",
        "    return path.is_symlink() and not "
        "Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))\n",
        "    return False\n",
        "tests/data/readers/"
        "test_readers.py::test_a_caption_that_is_a_link_out_of_the_folder_is_refused",
    ),
    PromiseMutant(
        "secrets of a URL are told",
        "fulcrum/files/remote.py",
        '    return re.sub(r"//[^/?#]*@", "//", re.split(r"[?#]", _CUT.sub("//", url), '
        "maxsplit=1)[0])\n",
        "    return url\n",
        "tests/files/test_remote.py",
    ),
    PromiseMutant(
        "an error's text is shortened before its secrets go",
        "fulcrum/files/remote.py",
        '    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__\n',
        '    text = (f"{type(error).__name__}: {error}" if str(error) else '
        "type(error).__name__)[:LONGEST]\n",
        "tests/files/test_remote.py::test_no_secret_is_told_however_the_text_is_cut",
    ),
    PromiseMutant(
        "a redirect leads anywhere",
        "fulcrum/files/remote.py",
        '        if not target.startswith(("http://", "https://")):\n',
        "        if False:\n",
        "tests/files/test_remote.py::test_redirects_lead_to_http_only_and_show_no_query",
    ),
    # Code and words
    PromiseMutant(
        "a user's file runs through __pycache__",
        "fulcrum/files/user_code.py",
        '        code = compile(source, name, "exec", dont_inherit=True)\n',
        "        code = spec.loader.get_code(spec.name)\n",
        "tests/files/test_user_code.py",
    ),
    PromiseMutant(
        "a user's file is read a second time to be hashed",
        "fulcrum/files/user_code.py",
        "    value = vars(module).get(_SHA256)\n",
        "    value = sha256_bytes(Path(str(module.__file__)).read_bytes())\n",
        "tests/levers/"
        "test_hashed_code.py::test_an_edit_after_loading_does_not_change_the_hash_of_what_runs",
    ),
    PromiseMutant(
        "a worker runs whatever a file holds by now",
        "fulcrum/levers/catalog.py",
        "        if name not in modules or hash_of(sys.modules[name]) != wanted:\n",
        "        if False:\n",
        "tests/levers/"
        "test_hashed_code.py::test_a_worker_does_not_run_an_edited_file_under_the_key_of_the_former"
        "",
    ),
    PromiseMutant(
        "an average's decay is squared",
        "fulcrum/training/average.py",
        "local(value).float(), 1 - self.decay)",
        "local(value).float(), 1 - self.decay**2)",
        "tests/train/test_average.py",
    ),
    PromiseMutant(
        "a plan has any number of seeds",
        "fulcrum/judge/design.py",
        "        if len(seeds) > MAX_SEEDS:\n",
        "        if False:\n",
        "tests/study/test_plan_limits.py",
    ),
    PromiseMutant(
        "an error in a person's own file does not name it",
        "fulcrum/spec/phrase.py",
        '    return f"{words} ({where})" if where else words\n',
        "    return words\n",
        "tests/cli/test_own_files.py",
    ),
    PromiseMutant(
        "a term that ends the process is a success",
        "fulcrum/cli/__init__.py",
        "    return None if place(error) else error.code",
        "    return error.code",
        "tests/cli/test_own_terms.py::test_a_term_that_ends_the_process_is_no_success",
        "JSONDecodeError",
    ),
    PromiseMutant(
        "an edit in place is not blamed on its term",
        LOOP,
        "                require_no_edit(error, built, batch, draw, weights)\n",
        "",
        "tests/cli/test_own_terms.py::test_an_edit_in_place_is_blamed_on_the_terms_own_file",
    ),
    PromiseMutant(
        "texts of a study are not escaped on its page",
        "fulcrum/judge/page.py",
        '    environment.filters["glue"] = _glue\n',
        '    environment.autoescape = False\n    environment.filters["glue"] = _glue\n',
        "tests/report/test_page.py::test_every_text_of_the_study_is_escaped",
    ),
    PromiseMutant(
        "texts of a study are not escaped in Markdown",
        "fulcrum/judge/page.py",
        r"""return re.sub(r"[\\`*\[\]<>|#~]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])","""
        r""" r"\\\g<0>", line)""",
        "return line",
        "tests/report/test_page.py::test_csv_and_markdown_take_text_as_text",
    ),
    PromiseMutant(
        "control characters reach a terminal",
        "fulcrum/spec/errors.py",
        '    return _OBEYED.sub(lambda letter: letter.group().encode("unicode_escape").decode(), '
        "text)\n",
        "    return text\n",
        "tests/report/test_page.py::test_no_text_of_a_study_steers_a_terminal_that_shows_its_files",
    ),
    PromiseMutant(
        "the page's server answers other names",
        "fulcrum/judge/serve.py",
        '            host.rsplit(":", 1)[0] in NAMES\n',
        "            True\n",
        "tests/report/test_serve.py::test_a_foreign_host_name_and_other_methods_are_refused",
    ),
    PromiseMutant(
        "the page's server serves what lies outside its folder",
        "fulcrum/judge/serve.py",
        "not hidden and path.is_relative_to(folder) and path.is_file()",
        "not hidden and path.is_file()",
        "tests/report/test_serve.py::test_nothing_else",
    ),
    PromiseMutant(
        "the page's server waits for ever",
        "fulcrum/judge/serve.py",
        "    timeout = WAIT\n",
        "    timeout = 1e9\n",
        "tests/report/test_serve.py",
    ),
    PromiseMutant(
        "output that nobody reads is a success",
        "fulcrum/cli/__init__.py",
        "            code = code or (UNREAD if error.errno == errno.EPIPE else 1)\n",
        "",
        "tests/cli/test_streams.py",
    ),
    PromiseMutant(
        "a refused run leaves its folder",
        "fulcrum/training/run_folder.py",
        "            remove(folder.path)\n",
        "            pass\n",
        "tests/cli/test_own_terms.py::test_what_was_refused_at_its_first_step_is_not_listed_as_stop"
        "ped",
    ),
    PromiseMutant(
        "a picture takes another's place",
        ATOMIC,
        "            handle = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, "
        "0o666)\n",
        "            handle = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW,"
        " 0o666)\n",
        "tests/files/test_atomic.py::test_a_new_file_takes_no_others_place",
    ),
    PromiseMutant(
        "a link is followed where we write",
        "fulcrum/files/paths.py",
        "flags | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW)",
        "flags | os.O_NONBLOCK",
        "tests/files/test_paths.py::test_what_is_no_plain_file_is_named",
    ),
    # What is said of a study
    PromiseMutant(
        "pairs are not of one seed",
        STATISTICS,
        "    after = np.array([arm[seed] for seed in paired], dtype=np.float64)\n",
        "    after = np.array(sorted(arm[seed] for seed in paired), dtype=np.float64)\n",
        "tests/study/test_effect.py",
    ),
    PromiseMutant(
        "the family of arms is not corrected",
        STATISTICS,
        "    rivals = np.maximum.accumulate(reached[..., ::-1], axis=-1)[..., ::-1]",
        "    rivals = reached",
        "tests/study/test_rank.py::test_equals_the_definition",
    ),
    PromiseMutant(
        "a verdict does not ask for the interval",
        STATISTICS,
        "    if p_adjusted <= alpha and (effect.low > 0.0 or effect.high < 0.0):\n",
        "    if p_adjusted <= alpha:\n",
        "tests/study/test_verdict.py",
    ),
    PromiseMutant(
        "survivors of failed seeds make an arm better",
        STATISTICS,
        '        return "inconclusive" if effect.failed else "better"\n',
        '        return "better"\n',
        "tests/study/test_verdict.py::test_survivors_alone_speak_only_against_an_arm",
    ),
)
