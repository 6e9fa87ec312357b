"""`python -m reverie` is the command `reverie`, also where no script of that name is on the path."""

from reverie.cli import main

if __name__ == "__main__":
    main()
