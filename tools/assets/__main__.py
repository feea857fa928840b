"""python -m tools.assets: fits the shipped networks anew."""

from tools.assets.build import main

main()
