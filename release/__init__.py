"""The release: versions, the files of all packages, and a rehearsal of their installation."""
