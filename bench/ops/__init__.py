"""Every op by itself: is it torchvision's on every backend, and how fast is it beside torchvision and OpenCV?"""
