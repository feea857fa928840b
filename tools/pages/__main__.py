"""Write the generated pages: python -m tools.pages docs"""

import sys
from pathlib import Path

from tools.pages.advice_blocks import refresh
from tools.pages.generated import write

if __name__ == "__main__":
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():
        sys.exit("expected the folder of the docs: python -m tools.pages docs")
    made = [*write(Path(sys.argv[1])), refresh(Path(sys.argv[1]))]
    print(f"{len(made)} pages under {sys.argv[1]}")
