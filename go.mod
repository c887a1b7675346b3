module tilework

go 1.26
