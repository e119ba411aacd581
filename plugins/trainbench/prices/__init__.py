"""What a GPU-hour costs, rented or owned: dated prices in, US dollars out."""
