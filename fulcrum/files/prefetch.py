"""Read ahead: threads work on the next items while the caller uses a result."""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def prefetched(
    work: Callable[[Item], Result],
    items: Iterable[Item],
    ahead: int,
    threads: int = 1,
    **pool: Any,
) -> Generator[Result, None, None]:
    """Yield `work(item)` for each item, in order.

    While the caller uses a result, threads work on the next `ahead` items and on no others. The
    caller's thread takes the items. An error of a thread is raised, as itself, where its result is
    asked for. Close the generator to cancel what has not begun and to end the threads. `pool`: more
    settings of the ThreadPoolExecutor.
    """
    items = iter(items)
    with ThreadPoolExecutor(threads, **pool) as executor:
        waiting: deque[Future[Result]] = deque()
        try:
            waiting.extend(executor.submit(work, item) for item in islice(items, ahead))
            while waiting:
                waiting.extend(executor.submit(work, item) for item in islice(items, 1))
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
