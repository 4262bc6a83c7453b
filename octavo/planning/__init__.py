"""Planning: what a model takes on given hardware, computed by the code that later allocates. Memory, processes, communication, speed.

Models are built on the meta device through the passes of loading/, and the cache is planned by kvcache/; nothing here has arithmetic of its
own for what those know. May import any lower room; nobody but the command line, through plugins.load, uses it.
"""
