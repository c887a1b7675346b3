package main

func Example() {
	main()
	// Output:
	// 1 0.5
	// 1 0
	// 1 0
	// 0 4
	// device: cpu
	// true shapes do not fit: A is 4×3 and B is 2×3: want a B of 3×3
}
