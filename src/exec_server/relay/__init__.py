"""The remote wire: frames, the Noise channel in them, the streams of one socket. No I/O."""
