"""Support for code written for dm-reverb: an import hook, a table of names, and their modules.

`import reverie` installs the hook and loads nothing else of this folder: a name is loaded when it is first used.
"""
