"""What the Valkey engine is made of: Lua functions (one atomic call each), the connection, the forms on the wire."""
