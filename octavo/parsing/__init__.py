"""What a model says, taken apart: reasoning, content and tool calls, out of the stream of its tokens. One machine, and a table per format.

May import the floors below it (errors, plugins, protocol, config) and never torch. A request's fields and the answer's JSON are the
server's; what the next token may be is the grammar's.
"""
