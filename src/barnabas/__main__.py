"""`python -m barnabas` is the command `barnabas`."""

from barnabas.cli import main

if __name__ == "__main__":
    main()
