"""Card-addition sessions: begin, read and list them, with the limits that apply."""
