"""A profile's rules written for other systems: Lua, JavaScript, VCL and Python."""
