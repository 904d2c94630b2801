"""Messages about interruptions, from bytes to facts. One file in this folder a kind, and one line in `table.KINDS`.

Pure: no I/O, no clock, and nothing is ever raised for what a message holds. Lenient where real messages vary (forms of
ARNs, wording, missing or odd times), strict on what matters: a message that names no instance where its kind must is
malformed, never guessed at.
"""
