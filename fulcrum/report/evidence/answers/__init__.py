"""What the articles say, each as a question with our answer and the findings behind it."""
