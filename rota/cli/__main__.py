"""`python -m rota.cli` is `rota`, where the script is not on the path."""

from rota.cli import main

main()
